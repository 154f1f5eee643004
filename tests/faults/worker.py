"""What torchrun starts: the `latentalign` command, in which one rank may be killed before a step.

worker.py RANK STEP train ...
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from faults.lab import before_step, command, die

rank, step, *arguments = sys.argv[1:]
action = command(*arguments)
if rank == os.environ["RANK"]:
    action = before_step(int(step), die, action)
action()
