"""Injects faults into training runs and run directories, and counts how often each promise is kept.

    make faults                                                   all promises, two at a time
    PYTHONPATH=tests python -m faults --only kill --scale 0.05    one promise, a twentieth of the injections
    PYTHONPATH=tests python -m faults --markdown docs/reliability.md    write the counts into the page

Exits with code 1 if a promise is broken. The promises are listed in docs/reliability.md.
"""

import sys

from faults.promises import main

if __name__ == "__main__":  # each promise runs in a spawned process, which imports this file again
    sys.exit(main((__doc__ or "").partition("\n")[0]))
