"""python -m latentalign"""

from latentalign.cli.main import main

main()
