"""The `latentalign` command, also as `python -m latentalign`. It explains which optional package is missing."""

import sys

from latentalign.extras import EXTRA_OF, explain_missing


def main() -> None:
    """Run the command line. If an optional package is missing, print how to install it and exit with code 2."""
    try:
        from latentalign.cli.main import main as run_command_line

        run_command_line()
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRA_OF:
            raise
        print(f"latentalign: {explain_missing(package)}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:  # before a command has started
        print("latentalign: ended by Ctrl-C", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
