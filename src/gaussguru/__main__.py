"""The ``gaussguru`` command, also ``python -m gaussguru``."""

import sys


def main() -> int:
    """Run the command, or say what is to be installed for it."""
    try:
        from gaussguru import cli  # noqa: PLC0415  not there without the extra
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("gaussguru"):
            raise
        print(f"gaussguru: the command needs {error.name}; pip install 'gaussguru[cli]'", file=sys.stderr)
        return 2
    except KeyboardInterrupt:  # while all that is imported
        print("gaussguru: interrupted", file=sys.stderr)
        return 130
    return cli.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
