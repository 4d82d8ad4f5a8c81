"""The verbs of trained systems, and the options that they add to other verbs.

The command finds them through the entry points `whenabouts.verbs` and `whenabouts.verb_options`.
"""

from whenabouts.cli.verbs import Verb, VerbOptions

TRAIN = Verb("whenabouts_systems.cli.train", "train a system on annotated moments and features", "research")
RUN = Verb("whenabouts_systems.cli.run", "let a trained system answer the queries of a split", "research")
FEATURES = Verb(
    "whenabouts_systems.cli.features", "show, compare, convert and make feature files", "research"
)
IMPORT_CHECKPOINT = Verb(
    "whenabouts_systems.cli.import_checkpoint",
    "turn a checkpoint of the authors' program into a trained system",
    "research",
)
EXPLAIN = Verb(
    "whenabouts_systems.cli.explain", "why a trained system answers a query as it does", "research"
)
HIGHLIGHTS = VerbOptions("search", "whenabouts_systems.cli.highlights")
CALIBRATE = VerbOptions("calibrate", "whenabouts_systems.cli.calibrate")
