"""`python -m harness`: as the script `refitcheck`."""

from harness.entry import main

if __name__ == "__main__":
    main()
