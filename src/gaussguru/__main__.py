"""The ``gaussguru`` command, also ``python -m gaussguru``."""

import os
import sys


def main() -> int:
    """Run the command, or say what is to be installed for it."""
    try:
        from gaussguru import cli  # noqa: PLC0415  not there without the extra

        cli.load(sys.argv[1:])
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("gaussguru"):
            raise
        extra = "pip install 'gaussguru[cli]' (in a checkout: pip install '.[cli]')"
        print(f"gaussguru: the command needs {error.name}: {extra}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:  # while all that is imported
        print("gaussguru: interrupted", file=sys.stderr)
        return 130
    code = cli.main(sys.argv[1:])
    if code:
        # A thread of Arrow that was reading ahead when something failed may outlive the interpreter, which aborts then.
        # All files are closed, and nothing is left to be done.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


if __name__ == "__main__":
    sys.exit(main())
