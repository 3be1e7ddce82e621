"""`Value`: the frozen, keyword-only, validated base of every rule, config and recipe.

A value holds no run state. It is checked when it is made, compares by content, prints as readable JSON and
has a digest, so that "the same recipe" means the same thing to a run, a cache and a table.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, ValidationError, model_serializer

from eqr.errors import UserError, brief, nearest


class Value(BaseModel):
    """A frozen value; unknown keys are errors that name the nearest known one."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=False, validate_default=True, allow_inf_nan=False
    )
    newer: ClassVar[tuple[str, ...]] = ()
    """Fields left out of JSON at their defaults, so that digests from before they existed stay valid."""

    @model_serializer(mode="wrap")
    def _without_newer(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        data: dict[str, Any] = dump(self)
        for name in self.newer:
            if getattr(self, name) == type(self).model_fields[name].default:
                data.pop(name, None)
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any], *, where: str = "") -> Self:
        """Build from plain JSON data; a mistake becomes a `UserError` that names the field and the fix."""
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise UserError(_explain(cls, error, where or cls.__name__)) from None

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data that `from_json` takes back unchanged."""
        return self.model_dump(mode="json")

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed, validated again."""
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        return type(self).from_json({**fields, **changes})

    def digest(self) -> str:
        """Return a short content hash, equal exactly for equal values."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class Inner(ValueError):
    """What is wrong inside a value that a validator made, so that it is told by its place in the whole."""

    def __init__(self, cls: type[BaseModel], error: ValidationError) -> None:
        super().__init__(str(error))
        self.cls, self.error = cls, error


def _explain(cls: type[BaseModel], error: ValidationError, where: str, above: str = "") -> str:
    lines = []
    for problem in error.errors():
        path = ".".join([*filter(None, [above]), *(str(part) for part in problem["loc"])])
        inner = problem.get("ctx", {}).get("error")
        if isinstance(inner, Inner):
            lines.append(_explain(inner.cls, inner.error, where, path))
        elif problem["type"] == "extra_forbidden":
            known = _fields_at(cls, problem["loc"][:-1])
            lines.append(f"{where}: unknown key {path!r}{nearest(str(problem['loc'][-1]), known)}")
        else:
            lines.append(f"{where}: {path or 'value'} = {brief(problem['input'])}: {problem['msg']}")
    return "\n".join(lines)


def _fields_at(cls: type[BaseModel], path: tuple[int | str, ...]) -> set[str]:
    """Names of the fields of the (possibly nested, possibly union) value that `path` leads to."""
    classes: list[type[BaseModel]] = [cls]
    for part in path:
        inner = [c.model_fields[str(part)].annotation for c in classes if str(part) in c.model_fields]
        if inner:  # a union's tag appears in the path too; it selects among the classes already held
            classes = [found for annotation in inner for found in _values_in(annotation)]
    return {name for c in classes for name in c.model_fields}


def _values_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for part in getattr(annotation, "__args__", ()) for found in _values_in(part)]
