"""The verbs that build and measure benchmarks, found through the entry points `whenabouts.verbs`."""

from whenabouts.cli.verbs import Verb

EVALUATE = Verb("whenabouts_bench.cli.evaluate", "measure a run against judgements", "research")
BENCH = Verb("whenabouts_bench.cli.bench", "measure any system on published tasks", "research")
COMPARE = Verb("whenabouts_bench.cli.compare", "test whether runs really differ", "research")
REPORT = Verb("whenabouts_bench.cli.report", "write a page that shows where a run fails", "research")
CONVERT = Verb("whenabouts_bench.cli.convert", "write judgements or a run in another format", "research")
DATASETS = Verb(
    "whenabouts_bench.cli.datasets", "known data sets: list them, show one, check a folder", "research"
)
RELEVANCE = Verb(
    "whenabouts_bench.cli.relevance", "find relevant pairs of captions, make ranked training sets", "research"
)
BUILD = Verb(
    "whenabouts_bench.cli.build",
    "make benchmarks: imprecise queries, moments to judge, MVMR pools",
    "research",
)
JUDGE = Verb("whenabouts_bench.cli.judge", "let people judge moments in the browser", "research")
JUDGEMENTS = Verb(
    "whenabouts_bench.cli.judgements",
    "results of annotators' grades: consensus, agreement, qrels",
    "research",
)
