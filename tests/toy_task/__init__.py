"""A third task, defined outside the package: digits to number words, "4 2" -> "four two".

The alignment is latent: the word at a position comes from one of the digits. Importing this package registers the task.
Other processes import it if `LATENTALIGN_PLUGINS` names it.
"""

from latentalign.tasks.registry import TASKS
from toy_task.task import DigitsTask

TASKS["digits"] = DigitsTask()
