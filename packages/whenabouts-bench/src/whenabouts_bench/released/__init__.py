"""MVMR as its released programs do it where they depart from the paper; other modules follow the paper."""
