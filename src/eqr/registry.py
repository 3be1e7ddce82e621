"""One way to extend eqr: things known by name, whether built in, registered by a script or installed.

A `Registry` holds one sort of things: tasks, recipes, mixers, recurrences, starts, halting, selection,
schedules, optimizers. `register` puts a thing of one's own into the registry it belongs to, as a decorator or
a call; `eqr --load FILE` runs a file that does so; an installed package names its things in the entry-point
group `eqr.<sort>`. An unknown name is an error that names the nearest one.

A `Kind` is a value that JSON names by its `kind`; `reads` makes the validator of a field that holds one.
"""

from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import entry_points
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import ValidationError

from eqr.errors import UserError, brief, nearest
from eqr.value import Inner, Value

T = TypeVar("T")
Thing = TypeVar("Thing")


class Registry(Generic[T]):
    """Things of one sort by name."""

    _all: ClassVar[list["Registry[Any]"]] = []

    def __init__(
        self, sort: str, name_of: Callable[[Any], str | None], make: Callable[[Any], T] | None = None
    ) -> None:
        """`name_of` says what a thing is called here, None if it does not belong; `make` readies it."""
        self.sort, self._name_of, self._make = sort, name_of, make
        self._known: dict[str, T] = {}
        self._built_in: frozenset[str] = frozenset()
        Registry._all.append(self)

    def add(self, name: str, thing: T) -> None:
        """Make a thing known; one of the same make replaces it, so that a notebook cell can be run twice."""
        before = self._known.get(name)
        if name in self._built_in or (before is not None and _make_of(before) != _make_of(thing)):
            raise UserError(f"{self.sort}: {name!r} is already registered; give yours another name")
        self._known[name] = thing

    def keep(self, name: str, thing: T) -> T:
        """Keep what was made for a name, without asking, and return it."""
        self._known[name] = thing
        return thing

    def forget(self, name: str) -> None:
        """Keep it no longer."""
        del self._known[name]

    def close(self) -> None:
        """Let nobody replace what is known so far: those are the ones eqr comes with."""
        self._built_in = frozenset(self._known)

    def known(self, name: str) -> T | None:
        """Return what has that name in this process, None if nothing has."""
        return self._known.get(name)

    def find(self, name: str) -> T | None:
        """Return what is known by that name here or in an installed package, None if nothing is."""
        if name not in self._known:
            for point in entry_points(group=f"eqr.{self.sort}"):
                if point.name == name:
                    self.take(point.load(), name)
        return self.known(name)

    def __getitem__(self, name: str) -> T:
        found = self.find(name)
        if found is None:
            raise UserError(
                f"unknown {self.sort.removesuffix('s')} {brief(name)}{nearest(name, self)} "
                "(your own? add --load FILE)"
            )
        return found

    def __iter__(self) -> Iterator[str]:
        installed = [point.name for point in entry_points(group=f"eqr.{self.sort}")]
        return iter(dict.fromkeys([*self._known, *installed]))

    def items(self) -> Iterator[tuple[str, T]]:
        """Yield every name and what it stands for; plug-ins are loaded for it."""
        return ((name, self[name]) for name in self)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.find(name) is not None

    def take(self, thing: Any, name: str | None = None) -> bool:
        """Register a thing if it belongs here, and say whether it does; an entry point says its `name`."""
        own = self._name_of(thing)
        if own is None:
            if name is not None:
                raise UserError(f"plug-in {name!r} of eqr.{self.sort} is no such thing: {thing!r}")
            return False
        self.add(name or own, thing if self._make is None else self._make(thing))
        return True


def _make_of(thing: Any) -> str:
    return str(getattr(thing, "__qualname__", type(thing).__qualname__))


def register(thing: Thing) -> Thing:
    """Make a task or a kind of rule known by its name, in this process; works as a class decorator too."""
    if not sum(registry.take(thing) for registry in Registry._all):
        raise UserError(
            f"cannot register {thing!r}: expected a Task, or a subclass with a `kind` of Mixer, Recurrence, "
            "Start, HaltingRule, TrainingHalting, SelectionRule, Schedule or Optimizer"
        )
    return thing


class Kind(Value):
    """A value of a family that can be extended; a subclass with a `kind` of its own is one more of it."""

    kind: str


def kinds_of(family: type[Kind], sort: str) -> Registry[type[Any]]:
    """Return the registry of a family of values."""

    def name_of(thing: Any) -> str | None:
        if not (isinstance(thing, type) and issubclass(thing, family)):
            return None
        kind = thing.model_fields["kind"].default
        if not isinstance(kind, str):
            raise UserError(f'{thing.__name__} needs a kind to be known by: kind: Literal["..."] = "..."')
        return kind

    return Registry(sort, name_of)


def reads(registry: Registry[type[Any]]) -> Callable[[Any], Any]:
    """Return the validator that turns `{"kind": ...}`, or the kind alone, into a value of the family."""

    def read(given: Any) -> Any:
        plain = {"kind": given} if isinstance(given, str) else given
        if not isinstance(plain, Mapping):
            return given
        if "kind" not in plain:
            raise ValueError(f"say which: a `kind` of {', '.join(registry)}")
        try:
            cls = registry[str(plain["kind"])]
        except UserError as unknown:
            raise ValueError(str(unknown)) from None
        try:
            return cls.model_validate(plain)
        except ValidationError as error:
            raise Inner(cls, error) from None

    return read
