"""The Lease: one holder at a time, lost in time, given back at the end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sunfleet_operator.cluster import ConflictError, UnavailableError
from sunfleet_operator.leader import LeaderElection
from sunfleet_operator.settings import Settings
from sunfleet_optest.store import Store


def _election(store: Any, identity: str, **more: Any) -> LeaderElection:
    given = {
        "leader_election_namespace": "system", "identity": identity, "lease_retry_seconds": 0.01,
        "lease_renew_deadline_seconds": 0.1, "lease_duration_seconds": 0.2, **more,
    }  # fmt: skip
    return LeaderElection(store, Settings(**given))


def _lease(store: Store) -> dict[str, Any]:
    return dict(store.objects["Lease", "system", "sunfleet-operator"]["spec"])


async def test_the_first_one_gets_it_and_the_second_one_waits() -> None:
    store = Store()
    await asyncio.wait_for(_election(store, "a").acquire(), 1)
    keeper = asyncio.create_task(_election(store, "a").keep())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(_election(store, "b").acquire(), 0.3)
    keeper.cancel()
    assert (_lease(store)["holderIdentity"], _lease(store)["leaseTransitions"]) == ("a", 1)


async def test_a_holder_that_renews_no_more_is_succeeded_after_the_duration() -> None:
    store = Store()
    await _election(store, "a", lease_duration_seconds=1).acquire()
    started = asyncio.get_running_loop().time()
    await asyncio.wait_for(_election(store, "b").acquire(), 3)
    assert asyncio.get_running_loop().time() - started >= 1
    assert (_lease(store)["holderIdentity"], _lease(store)["leaseTransitions"]) == ("b", 2)


async def test_the_same_identity_takes_over_at_once_after_a_crash() -> None:
    store = Store()
    await _election(store, "a", lease_duration_seconds=60).acquire()
    await asyncio.wait_for(_election(store, "a").acquire(), 0.1)


async def test_a_released_lease_is_free_at_once() -> None:
    store = Store()
    first = _election(store, "a", lease_duration_seconds=60)
    await first.acquire()
    await first.release()
    await asyncio.wait_for(_election(store, "b").acquire(), 0.1)


async def test_releasing_leaves_the_lease_of_another_holder_alone() -> None:
    store = Store()
    await _election(store, "a").acquire()
    await _election(store, "b").release()
    assert _lease(store)["holderIdentity"] == "a"


class Cut:
    """A store whose connection can be cut, or whose answers hang."""

    def __init__(self) -> None:
        self.store, self.cut, self.hang = Store(), False, False
        self.hang_once = False

    async def _pass(self) -> None:
        if self.hang or self.hang_once:
            self.hang_once = False
            await asyncio.sleep(60)
        if self.cut:
            raise UnavailableError("GET lease", 0, "connection refused")

    async def get(self, kind: str, namespace: str, name: str) -> Any:
        await self._pass()
        return await self.store.get(kind, namespace, name)

    async def create(self, manifest: Any) -> Any:
        await self._pass()
        return await self.store.create(manifest)

    async def replace(self, manifest: Any) -> Any:
        await self._pass()
        return await self.store.replace(manifest)


@pytest.mark.parametrize("fault", ["cut", "hang"])
async def test_it_is_lost_within_the_renew_deadline_when_the_api_server_does_not_answer(fault: str) -> None:
    api = Cut()
    election = _election(api, "a")
    await election.acquire()
    setattr(api, fault, True)
    started = asyncio.get_running_loop().time()
    await asyncio.wait_for(election.keep(), 1)
    assert asyncio.get_running_loop().time() - started < 0.2 + 0.1  # the lease's duration and some patience


async def test_a_short_cut_loses_nothing() -> None:
    api = Cut()
    election = _election(api, "a", lease_renew_deadline_seconds=5, lease_duration_seconds=6)
    await election.acquire()
    keeper = asyncio.create_task(election.keep())
    api.cut = True
    await asyncio.sleep(0.1)
    api.cut = False
    await asyncio.sleep(0.1)
    assert not keeper.done()
    keeper.cancel()


async def test_one_request_that_hangs_loses_nothing() -> None:
    api = Cut()
    election = _election(api, "a", lease_renew_deadline_seconds=0.4, lease_duration_seconds=0.8)
    await election.acquire()
    keeper = asyncio.create_task(election.keep())
    api.hang_once = True
    await asyncio.sleep(0.8)
    assert not keeper.done()
    keeper.cancel()


@pytest.mark.parametrize(("retry", "deadline", "duration"), [(2, 15, 15), (10, 10, 15), (2, 20, 15)])
def test_settings_under_which_two_could_work_are_refused(retry: int, deadline: int, duration: int) -> None:
    with pytest.raises(ValueError, match="lease_retry_seconds < lease_renew_deadline_seconds < lease_duration_seconds"):
        Settings(lease_retry_seconds=retry, lease_renew_deadline_seconds=deadline, lease_duration_seconds=duration)


async def test_of_two_that_try_at_once_the_slower_one_loses() -> None:
    class Race(Store):
        async def replace(self, manifest: Any) -> Any:
            raise ConflictError("PUT lease", 409, "changed")

    store = Race()
    await _election(store, "a").acquire()
    store.objects["Lease", "system", "sunfleet-operator"]["spec"]["holderIdentity"] = ""
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(_election(store, "b").acquire(), 0.1)
