"""What torchrun starts: the `latentalign` command, in which one rank may be killed before a step.

python -m faults.worker RANK STEP train ...
"""

import os
import sys

from faults.lab import before_step, command, die

rank, step, *arguments = sys.argv[1:]
action = command(*arguments)
if rank == os.environ["RANK"]:
    action = before_step(int(step), die, action)
action()
