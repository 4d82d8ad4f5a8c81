"""Released programs of MVMR where they depart from the paper; the rooms below do as the paper says."""
