"""`python -m capsar`: the same as the command `capsar`."""

from capsar.cli import main

if __name__ == "__main__":
    main()
