"""Run the command line interface with `python -m capsar`."""

from capsar.cli import main

if __name__ == "__main__":
    main()
