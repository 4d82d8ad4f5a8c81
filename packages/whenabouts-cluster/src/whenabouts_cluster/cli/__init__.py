"""The verb `deploy`, found through the entry point `deploy` of `whenabouts.verbs`."""

from whenabouts.cli.verbs import Verb

DEPLOY = Verb(
    "whenabouts_cluster.cli.deploy", "serve a corpus by replicas on a Ray cluster", "search my videos"
)
