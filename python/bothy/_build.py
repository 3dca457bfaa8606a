"""What a build from a recipe or a Dockerfile is asked with, and how it fails."""

from __future__ import annotations

from typing import Any

from ._errors import BothyError, ConflictError, InvalidArgumentError, error_from_problem
from ._recipe import TemplateRecipe
from ._types import Build


def described(name: str, recipe: TemplateRecipe | None, dockerfile: str | None) -> dict[str, Any]:
    """Return the part of a request that says what is built."""
    if recipe is not None and dockerfile is not None:
        raise InvalidArgumentError("give a recipe or a Dockerfile, and not both")
    body: dict[str, Any] = {"name": name}
    if recipe is not None:
        dockerfile = recipe.dockerfile
        if recipe.started is not None:
            body["start"] = recipe.started
    if dockerfile is not None:
        body["dockerfile"] = dockerfile
    return body


def build_error(build: Build) -> BothyError:
    """Return the error that a build which has not succeeded stands for."""
    if build.state == "cancelled":
        return ConflictError(f"the build {build.id} of {build.name} was cancelled")
    return error_from_problem({"code": build.code, "detail": build.error, "hint": build.hint})
