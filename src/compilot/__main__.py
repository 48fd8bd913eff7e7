"""`python -m compilot`: the command line where the installed script is not on the PATH."""

from compilot.cli.main import run

if __name__ == "__main__":
    run()
