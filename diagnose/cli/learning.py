"""`diagnose rules propose | diff | stats`: rules from incidents, what a change of rules changes, how rules fare.

In: parsed arguments. Out: text on standard output and an exit code: 0 done, 1 not expressible or verdicts change.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from operator import methodcaller
from typing import TYPE_CHECKING, get_args

from diagnose.cli.streams import say
from diagnose.dataclass import replace
from diagnose.errors import StoreError, UsageError, installing

if TYPE_CHECKING:
    from diagnose.learning.case import Case, CaseLine
    from diagnose.learning.propose import Author, Proposal
    from diagnose.learning.trial import Trial
    from diagnose.models.learning import CandidateState
    from diagnose.models.rule import NegativeExample, RuleSet
    from diagnose.store.database import Database
    from diagnose.store.review import Review

_TOKEN_BYTES = 8 * 1024
_MOST = 20


def add_learning_parsers(add: Callable[[str, str], argparse.ArgumentParser]) -> None:
    """Add the verbs."""
    from diagnose.models.rule import AttributionName

    propose = add("propose", "write diagnosis rules from confirmed incidents that no rule decided")
    propose.add_argument("incidents", nargs="+", metavar="INCIDENT", help="an id of the memory, or logs on disk")
    propose.add_argument("--label", default="", metavar="TYPE", help="what failed, for logs on disk: an error type")
    propose.add_argument("--attribution", choices=get_args(AttributionName), help="whose fault, if not the type's")
    propose.add_argument("--line", default="", metavar="FILE:N", help="the line that decides, for logs on disk")
    propose.add_argument("--dir", default="", help="the rules directory (default: the rules of this checkout)")
    propose.add_argument("--patch", metavar="FILE", help="where the patch goes (default: ./<id>.patch)")
    propose.add_argument("--dry-run", action="store_true", help="print the rules; write and push nothing")
    propose.add_argument("--no-llm", action="store_true", help="let code write the rule, whatever model is configured")
    out = propose.add_argument_group("instead of files, a branch")
    out.add_argument("--push", metavar="REMOTE", help="push the rules as a new branch of this remote")
    out.add_argument("--branch", default="", help="the branch's name (default: rules/<id>)")
    out.add_argument("--pull-request", choices=("github", "gitlab"), help="open one for the branch, by token")
    out.add_argument("--base", default="", help="the branch that the request is made against")
    out.add_argument("--project", default="", metavar="OWNER/NAME", help="the project (default: by the remote)")
    out.add_argument("--api", default="", metavar="URL", help="the address of the API (default: by the remote)")
    diff = add("diff", "print what changes from one rule set to another, as Markdown")
    diff.add_argument("before", metavar="A", help="a rules directory or a Git revision")
    diff.add_argument("after", metavar="B", help="a rules directory or a Git revision")
    diff.add_argument("--no-speed", action="store_true", help="leave out how long compression takes")
    stats = add("stats", "show how rules fare in what is recorded: hits, confirmations, refutations, dead rules")
    stats.add_argument("--dead", action="store_true", help="only rules that never had a finding")
    stats.add_argument("--experimental", action="store_true", help="only rules in shadow")


def run_propose(options: argparse.Namespace) -> int:
    """Propose a rule for each incident; what cannot be expressed is told, and the exit code is 1."""
    from diagnose.learning.publish import Target, patch_text, publish, title_of, write_files
    from diagnose.learning.writing import write_whole

    if options.pull_request and not options.push:
        raise UsageError("--pull-request needs a branch to be opened for: give --push REMOTE")
    if len(options.incidents) > _MOST:
        raise UsageError(f"{len(options.incidents)} incidents at once; give at most {_MOST}")
    root = root_of(options.dir)
    token = _token(options.pull_request) if options.pull_request else ""
    proposals = [_unless_rejected(proposal) for proposal in _proposals(options, root)]
    made = [proposal for proposal in proposals if proposal.rule is not None]
    for proposal in proposals:
        if proposal.rule is None:
            say(f"{proposal.case.id}: not expressible as a rule")
            for why in proposal.why_not[:5]:
                say(f"  {why[:300]}")
    if made and options.dry_run:
        for proposal in made:
            print(f"# {proposal.path}\n{proposal.text}", end="")
    elif made and options.push:
        target = Target(options.push, options.branch, options.pull_request, options.api, options.project, options.base)
        _keep(made)
        print(publish(made, root, target, token, say))
    elif made:
        _keep(made)
        for path in write_files(made, root):
            print(f"wrote {path}")
        patch = options.patch or f"{made[0].rule.id}.patch"  # type: ignore[union-attr] # those with rules
        write_whole(patch, patch_text(made, _prefix(root)))
        print(f"wrote {patch}: {title_of(made)}")
    return 0 if len(made) == len(proposals) else 1


def _unless_rejected(proposal: Proposal) -> Proposal:
    """A proposal, or that a person has said no to it already."""
    rule = proposal.rule
    if rule is None or _reviewed(lambda review: review.state(rule)) != "rejected":
        return proposal
    why = f"the rule {rule.id} was rejected; see: diagnose rules candidates show {rule.id}"
    return replace(proposal, rule=None, why_not=(why,))


def _keep(made: list[Proposal]) -> None:
    """Lets the memory know of what is proposed, before it leaves: what is cut short there can be promoted from here."""
    for proposal in made:
        if (rule := proposal.rule) is not None:
            author, origin = ", ".join(rule.author), proposal.case.id
            _reviewed(methodcaller("propose", rule, author, origin))


def _reviewed(ask: Callable[[Review], CandidateState | None]) -> CandidateState | None:
    """What the memory says of a candidate; None where there is no memory, or it cannot be used."""
    try:
        with recorded_memory() as database:
            if database is None:
                return None
            from diagnose.store.review import Review

            return ask(Review(database))
    except StoreError as error:
        say(f"not kept as a candidate: {error}")
        return None


def _proposals(options: argparse.Namespace, root: str) -> Iterator[Proposal]:
    from diagnose.cli.rules import judged
    from diagnose.learning.corpus import Corpus
    from diagnose.learning.propose import propose
    from diagnose.learning.trial import Trial
    from diagnose.redaction import Redactor
    from diagnose.rules.lint.engines import re2_module
    from diagnose.rules.lint.run import fixtures_beside, log_names

    if re2_module() is None:
        raise UsageError(f"rules are proposed only where RE2 can check them: {installing('llm')}")
    rule_set = joined_rules(options)
    corpus = Corpus(fixtures_beside(root), judged)
    if not corpus.incidents:
        say(f"there is no corpus beside {root}: verdicts are not checked, do that in a checkout")
    trial = Trial(rule_set, root, corpus, judged)
    retired = [os.path.basename(path).removesuffix(".yml") for path in log_names(os.path.join(root, "deprecated"))]
    taken = list(retired)
    for name in options.incidents:
        case, redact = _case(name, options, rule_set)
        redactor = Redactor(rule_set.redactions)
        hide = redactor.redact if redact else str
        author = None if options.no_llm else _author(case, trial, hide, taken)
        proposal = propose(case, trial, redact=hide, author=author, taken=taken)
        if proposal.rule is not None:
            taken.append(proposal.rule.id)
        yield proposal


def joined_rules(options: argparse.Namespace) -> RuleSet:
    """The shipped rules, the site's, and those of the directory that is written to."""
    from diagnose.rules.load import load_rules
    from diagnose.rules.tree import shipped_rules

    if not options.dir:
        return load_rules(options.rules)
    own = [] if os.path.realpath(options.dir) == os.path.realpath(shipped_rules()) else [options.dir]
    whole = os.path.isfile(os.path.join(options.dir, "taxonomy.yml"))
    if own and whole:
        return load_rules(options.rules, shipped=options.dir)
    return load_rules([*options.rules, *(directory for directory in own if os.path.isdir(directory))])


def _case(name: str, options: argparse.Namespace, rule_set: RuleSet) -> tuple[Case, bool]:
    """The case of an argument, and whether its texts still have to be redacted."""
    from diagnose.learning.case import case_of_incident, case_of_path

    if os.path.exists(name):
        place = _place(options.line) if options.line else None
        return case_of_path(
            name, rule_set, error_type=options.label, attribution=options.attribution, deciding=place
        ), True
    incident, known = None, False
    with recorded_memory() as database:
        if database is not None:
            from diagnose.store.incidents import StoredIncidents

            incident, known = StoredIncidents(database).get(name), True
    if incident is None:
        where = "there is no incident, file or directory" if known else "there is no file or directory"
        raise UsageError(f"{where} {_shown(name)}; see `diagnose incidents list`, or name logs on disk with --label")
    return case_of_incident(incident, rule_set), False


def _place(text: str) -> tuple[str, int]:
    name, _, number = text.rpartition(":")
    if not name or not number.isascii() or not number.isdigit() or len(number) > 12:
        raise UsageError(f"--line {_shown(text)}: give a file and a line number, as in job.log:118")
    return name, int(number)


@contextlib.contextmanager
def recorded_memory() -> Iterator[Database | None]:
    """The database of the memory; None where there is none yet."""
    from diagnose.services import database_place, open_memory

    place = database_place(os.environ)
    if "://" not in place and not os.path.exists(place):
        yield None
        return
    with open_memory(place) as database:
        yield database


def _author(case: Case, trial: Trial, redact: Callable[[str], str], taken: list[str]) -> Author | None:
    """The configured model as an author of rules; None where there is none."""
    from diagnose.agents.settings import model_settings

    settings = model_settings(os.environ)
    if settings is None:
        return None
    from diagnose.agents.model import ChatModel
    from diagnose.learning.model_author import ModelAuthor
    from diagnose.learning.propose import negatives_of

    def negatives(line: CaseLine, pattern: str, keyword: str) -> tuple[NegativeExample, ...]:
        return negatives_of(case, line, pattern, keyword, trial, redact)

    known = [*taken, *(rule.id for rule in trial.rule_set.rules)]
    return ModelAuthor(ChatModel(settings), trial.rule_set, redact, negatives, known)


def root_of(given: str) -> str:
    """The rules directory that is written to."""
    from diagnose.rules.new import rules_of_checkout

    return given or rules_of_checkout()


def _prefix(root: str) -> str:
    """Where a rules directory stands in its checkout; its own name where it is in none."""
    here = os.path.abspath(root)
    above = here
    while os.path.dirname(above) != above:
        above = os.path.dirname(above)
        if os.path.exists(os.path.join(above, ".git")):
            return os.path.relpath(here, above).replace(os.sep, "/")
    return os.path.basename(here)


def _token(kind: str) -> str:
    """The forge's token, from a file or the environment, never from the command line."""
    path = os.environ.get("DIAGNOSE_FORGE_TOKEN_FILE", "").strip()
    if path:
        try:
            with open(path, "rb") as file:
                return file.read(_TOKEN_BYTES).decode("ascii", "replace").strip()
        except (OSError, ValueError) as error:  # a path that no system takes is a ValueError
            why = error.strerror if isinstance(error, OSError) else "its name is none"
            raise UsageError(f"the file of DIAGNOSE_FORGE_TOKEN_FILE cannot be read: {why}") from None
    names = ("DIAGNOSE_FORGE_TOKEN", "GITHUB_TOKEN" if kind == "github" else "GITLAB_TOKEN")
    return next((value.strip() for name in names if (value := os.environ.get(name))), "")


def run_diff(options: argparse.Namespace) -> int:
    """Print the page; the exit code is 1 where a verdict on the corpus changes."""
    from diagnose.cli.rules import judged
    from diagnose.learning.corpus import Corpus
    from diagnose.learning.diff import compare, markdown
    from diagnose.rules.lint.base import log_files, read_log
    from diagnose.rules.lint.run import fixtures_beside
    from diagnose.rules.load import load_rules
    from diagnose.rules.tree import shown

    with contextlib.ExitStack() as stack:
        before, after = (_directory(name, stack) for name in (options.before, options.after))
        fixtures = fixtures_beside(after)
        if not os.path.isdir(fixtures):
            fixtures = fixtures_beside(root_of(""))
        corpus = Corpus(fixtures, judged)
        sets = [load_rules(options.rules, shipped=directory) for directory in (before, after)]
        healthy = tuple(
            (shown(path), tuple(read_log(path).split("\n"))) for path in log_files(os.path.join(fixtures, "healthy"))
        )
        change = compare(sets[0], sets[1], corpus, healthy, speed=not options.no_speed)
        print(markdown(change), end="")
    return 1 if any(old.verdict != new.verdict for _, old, new in change.verdicts) else 0


def _directory(name: str, stack: contextlib.ExitStack) -> str:
    """The rules directory that a name stands for; those of a revision are written to a directory for a while."""
    from diagnose.learning.git import Git

    if os.path.isdir(name):
        for folder in (name, os.path.join(name, "rules")):
            if os.path.isfile(os.path.join(folder, "taxonomy.yml")):
                return folder
        raise UsageError(f"{_shown(name)} is no rules directory: it holds no taxonomy.yml")
    git = Git(os.curdir)
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="rules-"))
    git.extract(git.revision(name), ("rules",), folder)
    return os.path.join(folder, "rules")


def run_stats(options: argparse.Namespace) -> int:
    """Print one row for each rule, those to look at first."""
    from diagnose.cli.rules import print_table
    from diagnose.learning.stats import rule_figures
    from diagnose.rules.load import load_rules

    with recorded_memory() as database:
        if database is None:
            raise UsageError("nothing is recorded yet: run `diagnose LOG --record`, or set DIAGNOSE_DATABASE")
        from diagnose.store.candidates import StoredRuleRecords

        records = tuple(StoredRuleRecords(database).rule_records())
    figures = rule_figures(records, load_rules(options.rules))
    rows = [
        (
            each.record.rule,
            each.status,
            each.error_type,
            str(each.record.hits),
            str(each.record.decided),
            str(each.record.confirmed),
            str(each.record.refuted),
            (each.record.last or "-")[:10],
            each.remark,
        )
        for each in figures
        if (each.dead or not options.dead) and (each.status == "experimental" or not options.experimental)
    ]
    print_table(("rule", "status", "error type", "hits", "decided", "confirmed", "refuted", "last", "remark"), rows)
    dead = sum(each.dead for each in figures)
    say(f"{len(figures)} rules, {dead} of which never had a finding")
    return 0


def _shown(text: str) -> str:
    from diagnose.sources.printable import printable

    return printable(text[:200])
