"""What a torch.distributed.DistBackendError of the backend is about, as data."""

from __future__ import annotations

import dataclasses

from tutti import backend

__all__ = ["Error", "error_of"]


@dataclasses.dataclass(frozen=True)
class Error:
    """The parts of an error. Ranks are numbered within the group; what is not known is empty or None.

    Attributes:
        kind: "PeerLost", "Timeout", "Mismatch", "Aborted" (another rank has ended the group), ...
        text: the message, without what torch puts around it.
        group: the name of the group.
        rank: this rank.
        operation: the call, such as "all_reduce #42 (f32[1048576], sum)".
        peer: the rank that the message names.
        late_ranks: the ranks that a timeout is about.
        lost_ranks: the ranks that are gone: they have exited, or have left the group.
        waited, limit: seconds.
        cause: the message of the error that led to this one, if it is another.
        hint: what to do.
    """

    kind: str
    text: str
    group: str
    rank: int | None
    operation: str
    peer: int | None
    late_ranks: list[int]
    lost_ranks: list[int]
    waited: float | None
    limit: float | None
    cause: str
    hint: str


def error_of(exception: BaseException) -> Error | None:
    """The error of the backend in an exception, or in one that led to it.

    For programs that act on it::

        except torch.distributed.DistBackendError as exception:
            error = tutti.error_of(exception)
            if error and error.lost_ranks:
                shrink_without(error.lost_ranks)

    Returns:
        None for an exception that is not of the backend, such as one for a wrong argument. Also None
        if this process has raised 64 other errors since.
    """
    module = backend.loaded()
    if module is None:
        return None
    seen: set[int] = set()
    left: list[BaseException | None] = [exception]
    while left:
        one = left.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        fields = module.error_in(str(one))
        if fields is not None:
            return Error(**fields)
        left += [one.__context__, one.__cause__]
    return None
