"""`python -m oelm_tui` is `oelm`."""

from oelm_tui.cli import main

if __name__ == "__main__":
    main()
