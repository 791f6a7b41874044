"""The commit of the Redis store: one script that checks the conditions of all steps, then does all of them.

Steps are flat arguments: a letter, then the arguments of that step; their keys follow each other in ``KEYS``. What is
stored for an index: its members in their order, when each expires, and their weights, of which the field "" is the sum.
For a queue: entries with a lease by the time of the lease, entries without one in their order, the data of each entry,
and its attempt and holder. So no step costs more if more is stored, but for the logarithm of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trunkline.store.interface import Commit, Delete, Enqueue, Finish, FullIndex, Index, Put, Step
from trunkline.store.redis_scripts import PROCESS_SECONDS, PRUNE, KeyNames, milliseconds

__all__ = ["COMMIT", "commit_arguments", "commit_outcome"]

# KEYS: process, then those of the steps. ARGV: how many writes of the process are acknowledged, then the steps. If
# acknowledged writes are gone, nothing is done: what the steps depend on may be gone too, and their count would hide
# from the check that any are. Returns the number of writes of the process; if a condition did not hold a list, of the
# step, the index and the limit if an index has no room.
COMMIT = f"""
if tonumber(redis.call('HGET', KEYS[1], 'writes') or '0') < tonumber(ARGV[1]) then
  return redis.error_reply('LOST acknowledged writes are gone')
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
{PRUNE}
local keys_of, arguments_of = {{p = 1, d = 4, e = 4, f = 4, m = 0}}, {{p = 4, d = 0, e = 4, f = 2, m = 2}}
local function visit(visitors)
  local k, a, number = 2, 2, 0
  while a <= #ARGV do
    local step = ARGV[a]
    local keys, arguments = keys_of[step], arguments_of[step]
    if step == 'i' then keys, arguments = 3 * (ARGV[a + 4] + ARGV[a + 5]), 5 + 2 * ARGV[a + 4] end
    if visitors[step] then
      local failure = visitors[step](k, a, number)
      if failure then return failure end
    end
    k, a, number = k + keys, a + arguments + 1, number + 1
  end
end
-- p: condition ("", "absent" or "old"), value, milliseconds to live, old value.
local conditions = {{}}
function conditions.p(k, a)
  if ARGV[a + 1] == 'absent' then
    if redis.call('EXISTS', KEYS[k]) == 1 then return {{}} end
  elseif ARGV[a + 1] == 'old' then
    if redis.call('GET', KEYS[k]) ~= ARGV[a + 4] then return {{}} end
  end
end
-- i: member, weight, milliseconds to live, number of indexes to add to, number of those to remove from, then for each
-- of the first the most members and the greatest weight, or 0.
function conditions.i(k, a, number)
  local member, weight = ARGV[a + 1], tonumber(ARGV[a + 2])
  for n = 0, ARGV[a + 4] - 1 do
    local i = k + 3 * n
    prune(i)
    local most, heaviest = tonumber(ARGV[a + 6 + 2 * n]), tonumber(ARGV[a + 7 + 2 * n])
    local present = -1
    if redis.call('ZSCORE', KEYS[i + 1], member) then
      present = tonumber(redis.call('HGET', KEYS[i + 2], member) or '0')
    elseif most > 0 and redis.call('ZCOUNT', KEYS[i + 1], '(' .. now, '+inf') >= most then
      return {{number, n, 'members'}}
    end
    local others = tonumber(redis.call('HGET', KEYS[i + 2], '') or '0') - math.max(present, 0)
    if weight > present and heaviest > 0 and others + weight > heaviest then return {{number, n, 'weight'}} end
  end
end
local failure = visit(conditions)
if failure then return failure end
local actions = {{}}
function actions.p(k, a) redis.call('SET', KEYS[k], ARGV[a + 2], 'PX', ARGV[a + 3]) end
function actions.d(k) redis.call('UNLINK', KEYS[k], KEYS[k + 1], KEYS[k + 2], KEYS[k + 3]) end
function actions.i(k, a)
  local member, weight, into = ARGV[a + 1], tonumber(ARGV[a + 2]), tonumber(ARGV[a + 4])
  for n = 0, into + ARGV[a + 5] - 1 do
    local i = k + 3 * n
    remove(i, member)
    if n < into then
      redis.call('ZADD', KEYS[i], 0, member)
      redis.call('ZADD', KEYS[i + 1], string.format('%.0f', now + ARGV[a + 3]), member)
      if weight > 0 then
        redis.call('HSET', KEYS[i + 2], member, weight)
        redis.call('HINCRBY', KEYS[i + 2], '', weight)
      end
    end
    -- An index expires with its last member.
    local last = redis.call('ZREVRANGE', KEYS[i + 1], 0, 0, 'WITHSCORES')[2]
    for part = i, i + 2 do
      if last then redis.call('PEXPIREAT', KEYS[part], string.format('%.0f', last))
      else redis.call('UNLINK', KEYS[part]) end
    end
  end
end
-- e: id, data, holder or "", channel.
function actions.e(k, a)
  local id, holder = ARGV[a + 1], ARGV[a + 3]
  redis.call('HSET', KEYS[k + 2], id, ARGV[a + 2])
  if holder == '' then
    redis.call('ZREM', KEYS[k], id)
    redis.call('HDEL', KEYS[k + 3], id)
    local last = redis.call('ZREVRANGE', KEYS[k + 1], 0, 0, 'WITHSCORES')[2] or 0
    redis.call('ZADD', KEYS[k + 1], 'NX', last + 1, id)
  else
    redis.call('ZREM', KEYS[k + 1], id)
    redis.call('ZADD', KEYS[k], string.format('%.0f', now), id)
    redis.call('HSET', KEYS[k + 3], id, '1 ' .. holder)
  end
  redis.call('PUBLISH', ARGV[a + 4], id)
end
-- f: holder, id.
function actions.f(k, a)
  local holder, id = ARGV[a + 1], ARGV[a + 2]
  local lease = redis.call('HGET', KEYS[k + 3], id)
  if lease and string.match(lease, '^%d+ (.*)$') == holder then
    redis.call('ZREM', KEYS[k], id)
    redis.call('HDEL', KEYS[k + 2], id)
    redis.call('HDEL', KEYS[k + 3], id)
  end
end
-- m: channel, data.
function actions.m(k, a) redis.call('PUBLISH', ARGV[a + 1], ARGV[a + 2]) end
visit(actions)
local writes = redis.call('HINCRBY', KEYS[1], 'writes', 1)
if writes == 1 then redis.call('EXPIRE', KEYS[1], {PROCESS_SECONDS}) end
return writes
"""


def commit_arguments(steps: Sequence[Step], names: KeyNames) -> tuple[list[str], list[Any]]:
    """Return the keys and the arguments of the script for these steps."""
    keys: list[str] = []
    args: list[Any] = []
    for step in steps:
        if isinstance(step, Put):
            keys.append(names.value(step.key))
            condition = "absent" if step.only_if_absent else "" if step.old is None else "old"
            args += ("p", condition, step.value, milliseconds(step.ttl), b"" if step.old is None else step.old)
        elif isinstance(step, Delete):
            keys += (names.value(step.key), *names.log(step.key), names.limit(step.key))
            args.append("d")
        elif isinstance(step, Index):
            keys += (key for name in (*step.into, *step.out_of) for key in names.index(name))
            args += ("i", step.member, step.weight, milliseconds(step.ttl), len(step.into), len(step.out_of))
            args += (number for limits in step.into.values() for number in limits)
        elif isinstance(step, Enqueue):
            keys += names.queue(step.queue)
            args += ("e", step.id, step.data, step.holder, names.channel(step.queue))
        elif isinstance(step, Finish):
            keys += names.queue(step.queue)
            args += ("f", step.holder, step.id)
        else:
            args += ("m", names.channel(step.channel), step.data)
    return keys, args


def commit_outcome(steps: Sequence[Step], reply: int | list[Any]) -> Commit:
    """Return the outcome that a reply of the script means."""
    if isinstance(reply, int):
        return Commit(True)
    if not reply:
        return Commit(False)
    number, position, limit = reply
    step = steps[number]
    assert isinstance(step, Index)
    return Commit(False, FullIndex(list(step.into)[position], limit.decode()))
