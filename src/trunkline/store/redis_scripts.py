"""The Lua scripts of the Redis store: each verb that is more than one command is one step.

``KEYS[1]`` of every script that writes is the hash of the calling process: ``last`` is the number of its last append,
``writes`` counts its other writes, and ``0`` to ``1023`` remember the outcomes of its last appends. They are how a
process notices that acknowledged writes are gone, and how a repeated append is done once.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["PROCESS_SECONDS", "RING", "SCRIPTS"]

#: How many outcomes of appends are remembered for each process; never more than this are unacknowledged.
RING = 1024
#: For how long the hash of a process is kept after its last sign of life: longer than outages, shorter than for ever.
PROCESS_SECONDS = 86400

_COUNT = "redis.call('HINCRBY', KEYS[1], 'writes', 1)"

# The last of ARGV of each script that counts: how many writes of the process are acknowledged. If some are gone,
# nothing is done: what the write depends on may be gone too, and its count would hide from the check that any are.
_REFUSE_LOST = """
if tonumber(redis.call('HGET', KEYS[1], 'writes') or '0') < tonumber(ARGV[#ARGV]) then
  return redis.error_reply('LOST acknowledged writes are gone')
end
"""

# ARGV: value, milliseconds to live, whether only if absent.
_PUT = f"""{_REFUSE_LOST}
local done
if ARGV[3] == '1' then
  done = redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2], 'NX')
else
  done = redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
end
return {{{_COUNT}, done and 1 or 0}}
"""

# ARGV: old value, new value, milliseconds to live.
_REPLACE = f"""{_REFUSE_LOST}
local done = 0
if redis.call('GET', KEYS[2]) == ARGV[1] then
  redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
  done = 1
end
return {{{_COUNT}, done}}
"""

_DELETE = f"""{_REFUSE_LOST}
for i = 2, #KEYS do redis.call('DEL', KEYS[i]) end
return {{{_COUNT}, 1}}
"""

# KEYS: process, stream, its size. ARGV: data, most entries, most bytes, milliseconds to live, number of this append,
# number of the last acknowledged one, number of the one before it in its group or 0, channel or "", what is published
# on it: "entry" or "id", holder or "". If the one before it was refused, so is this: it must not overtake that one.
_APPEND = f"""
local last = tonumber(redis.call('HGET', KEYS[1], 'last') or '0')
if last < tonumber(ARGV[6]) then return redis.error_reply('LOST acknowledged appends are gone') end
local slot = ARGV[5] % {RING}
local done = redis.call('HGET', KEYS[1], slot)
if done then
  local number, heard, id = string.match(done, '^(%d+) (%d+) (.+)$')
  if number == ARGV[5] then return {{id, tonumber(heard)}} end
end
if last < tonumber(ARGV[7]) then return redis.error_reply('EARLY the append before it was refused') end
local id = redis.call('XADD', KEYS[2], '*', 'd', ARGV[1])
local most, bytes = tonumber(ARGV[2]), tonumber(ARGV[3])
if most > 0 then
  local count = redis.call('XLEN', KEYS[2])
  local size
  if count == 1 then
    size = #ARGV[1]
    redis.call('SET', KEYS[3], size)
  else
    size = redis.call('INCRBY', KEYS[3], #ARGV[1])
  end
  while count > 1 and (count > most or size > bytes) do
    local oldest = redis.call('XRANGE', KEYS[2], '-', '+', 'COUNT', 1)[1]
    redis.call('XDEL', KEYS[2], oldest[1])
    size = redis.call('DECRBY', KEYS[3], #oldest[2][2])
    count = count - 1
  end
  redis.call('PEXPIRE', KEYS[2], ARGV[4])
  redis.call('PEXPIRE', KEYS[3], ARGV[4])
end
if ARGV[10] then
  if #redis.call('XINFO', 'GROUPS', KEYS[2]) == 0 then redis.call('XGROUP', 'CREATE', KEYS[2], 'workers', '0') end
  redis.call('XCLAIM', KEYS[2], 'workers', ARGV[10], 0, id, 'RETRYCOUNT', 1, 'FORCE', 'JUSTID')
end
local heard = 0
if ARGV[8] ~= '' then
  heard = redis.call('PUBLISH', ARGV[8], ARGV[9] == 'id' and id or (id .. ' ' .. ARGV[1]))
end
redis.call('HSET', KEYS[1], 'last', math.max(last, ARGV[5]), slot, ARGV[5] .. ' ' .. heard .. ' ' .. id)
redis.call('EXPIRE', KEYS[1], {PROCESS_SECONDS})
return {{id, heard}}
"""

# GCRA. KEYS: key. ARGV: microseconds between two events, burst, number of events. Returns the microseconds to wait.
_ADMIT = """
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local interval, burst, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local arrival = tonumber(redis.call('GET', KEYS[1]) or now)
if arrival < now then arrival = now end
local wait = arrival + cost * interval - burst * interval - now
if wait > 0 then return math.ceil(wait) end
local ahead = arrival + cost * interval
redis.call('SET', KEYS[1], string.format('%.0f', ahead), 'PX', math.ceil((ahead - now) / 1000) + 1)
return 0
"""

# KEYS: stream. ARGV: holder, milliseconds of a lease, limit. Returns id, data and attempt of each entry. Entries that
# were leased when they were added lie among the new ones: they are pending, and skipped. XAUTOCLAIM looks only at ten
# times as many entries as it may claim, so it goes on until it has seen all. A consumer without leases for a day is
# a worker that has ended.
_TAKE = """
if redis.call('EXISTS', KEYS[1]) == 0 then return {} end
local groups = redis.call('XINFO', 'GROUPS', KEYS[1])
local last = '0-0'
if #groups == 0 then
  redis.call('XGROUP', 'CREATE', KEYS[1], 'workers', '0')
else
  for i = 1, #groups[1], 2 do
    if groups[1][i] == 'last-delivered-id' then last = groups[1][i + 1] end
  end
end
local limit, taken, cursor = tonumber(ARGV[3]), {}, '0-0'
repeat
  local found = redis.call(
    'XAUTOCLAIM', KEYS[1], 'workers', ARGV[1], ARGV[2], cursor, 'COUNT', limit - #taken)
  cursor = found[1]
  for _, entry in ipairs(found[2]) do
    if entry[2] then
      local held = redis.call('XPENDING', KEYS[1], 'workers', entry[1], entry[1], 1)[1]
      taken[#taken + 1] = {entry[1], entry[2][2], held[4]}
    end
  end
until cursor == '0-0' or #taken >= limit
local seen = last
while #taken < limit do
  local new = redis.call('XRANGE', KEYS[1], '(' .. seen, '+', 'COUNT', limit - #taken)
  if #new == 0 then break end
  for _, entry in ipairs(new) do
    seen = entry[1]
    if #redis.call('XPENDING', KEYS[1], 'workers', seen, seen, 1) == 0 then
      redis.call('XCLAIM', KEYS[1], 'workers', ARGV[1], 0, seen, 'RETRYCOUNT', 1, 'FORCE', 'JUSTID')
      taken[#taken + 1] = {seen, entry[2][2], 1}
    end
  end
end
if seen ~= last then redis.call('XGROUP', 'SETID', KEYS[1], 'workers', seen) end
for _, consumer in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], 'workers')) do
  if consumer[4] == 0 and consumer[6] > 86400000 then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], 'workers', consumer[2])
  end
end
return taken
"""

# KEYS: stream. ARGV: holder, "renew", "release" or "finish", ids. Returns the ids that the holder has.
_HOLD = """
local held = {}
if redis.call('EXISTS', KEYS[1]) == 0 then return held end
for i = 3, #ARGV do
  local found = redis.call('XPENDING', KEYS[1], 'workers', ARGV[i], ARGV[i], 1)[1]
  if found and found[2] == ARGV[1] then
    held[#held + 1] = ARGV[i]
    if ARGV[2] == 'renew' then
      redis.call('XCLAIM', KEYS[1], 'workers', ARGV[1], 0, ARGV[i], 'JUSTID')
    elseif ARGV[2] == 'release' then
      redis.call('XCLAIM', KEYS[1], 'workers', '', 0, ARGV[i], 'TIME', 0, 'JUSTID')
    else
      redis.call('XACK', KEYS[1], 'workers', ARGV[i])
      redis.call('XDEL', KEYS[1], ARGV[i])
    end
  end
end
return held
"""

# KEYS: process, then the three of each index: its members in their order, when they expire, their weights; the field
# "" of the weights is their sum. First the indexes to add to, then those to remove from. ARGV: member, weight,
# milliseconds to live, number of indexes to add to, then for each of them the most members and the greatest weight, or
# 0. Returns the number of the index without room and its limit, or 0. Of the members that have expired some hundreds
# are removed by each call, which keeps up with those that are added. An index expires with its last member.
_INDEX = f"""{_REFUSE_LOST}
local member, weight, ttl, into = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function remove(i, name)
  redis.call('ZREM', KEYS[i], name)
  redis.call('ZREM', KEYS[i + 1], name)
  local freed = redis.call('HGET', KEYS[i + 2], name)
  if freed then
    redis.call('HDEL', KEYS[i + 2], name)
    redis.call('HINCRBY', KEYS[i + 2], '', -freed)
  end
end
for n = 1, into do
  local i = 3 * n - 1
  for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[i + 1], '-inf', now, 'LIMIT', 0, 500)) do remove(i, name) end
  local most, heaviest = tonumber(ARGV[3 + 2 * n]), tonumber(ARGV[4 + 2 * n])
  local held = -1
  if redis.call('ZSCORE', KEYS[i + 1], member) then
    held = tonumber(redis.call('HGET', KEYS[i + 2], member) or '0')
  elseif most > 0 and redis.call('ZCOUNT', KEYS[i + 1], '(' .. now, '+inf') >= most then
    return {{{_COUNT}, n, 'members'}}
  end
  local others = tonumber(redis.call('HGET', KEYS[i + 2], '') or '0') - math.max(held, 0)
  if weight > held and heaviest > 0 and others + weight > heaviest then
    return {{{_COUNT}, n, 'weight'}}
  end
end
for n = 1, (#KEYS - 1) / 3 do
  local i = 3 * n - 1
  remove(i, member)
  if n <= into then
    redis.call('ZADD', KEYS[i], 0, member)
    redis.call('ZADD', KEYS[i + 1], string.format('%.0f', now + ttl), member)
    if weight > 0 then
      redis.call('HSET', KEYS[i + 2], member, weight)
      redis.call('HINCRBY', KEYS[i + 2], '', weight)
    end
  end
  local last = redis.call('ZREVRANGE', KEYS[i + 1], 0, 0, 'WITHSCORES')[2]
  for k = i, i + 2 do
    if last then redis.call('PEXPIREAT', KEYS[k], string.format('%.0f', last)) else redis.call('DEL', KEYS[k]) end
  end
end
return {{{_COUNT}, 0, ''}}
"""

# KEYS: the three of an index. ARGV: after which member, how many. Expired ones are left out, not removed.
_MEMBERS = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local from, limit, found = ARGV[1] == '' and '-' or ('(' .. ARGV[1]), tonumber(ARGV[2]), {}
while #found < limit do
  local names = redis.call('ZRANGEBYLEX', KEYS[1], from, '+', 'LIMIT', 0, limit - #found)
  if #names == 0 then break end
  for _, name in ipairs(names) do
    from = '(' .. name
    if tonumber(redis.call('ZSCORE', KEYS[2], name) or '0') > now then found[#found + 1] = name end
  end
end
return found
"""

# The regular check. KEYS: process, generation. ARGV: a new generation, the last acknowledged append, the number of
# acknowledged writes, the generation that the process knows or "", those that it knows to have ended. Returns the
# generation, and 1 if writes of this process are gone. Then a new generation begins, unless another process has begun
# one since: each would end the sessions that were opened after the one before. One that had ended is back only if the
# end of it was lost.
_CHECK = f"""
local last = tonumber(redis.call('HGET', KEYS[1], 'last') or '0')
local writes = tonumber(redis.call('HGET', KEYS[1], 'writes') or '0')
redis.call('EXPIRE', KEYS[1], {PROCESS_SECONDS})
local lost = last < tonumber(ARGV[2]) or writes < tonumber(ARGV[3])
local generation = redis.call('GET', KEYS[2])
local begins = not generation or (lost and generation == ARGV[4])
for i = 5, #ARGV do begins = begins or generation == ARGV[i] end
if begins then
  redis.call('SET', KEYS[2], ARGV[1])
  generation = ARGV[1]
end
return {{generation, lost and 1 or 0}}
"""

#: The scripts by name.
SCRIPTS: Mapping[str, str] = MappingProxyType(
    {
        "put": _PUT,
        "replace": _REPLACE,
        "delete": _DELETE,
        "append": _APPEND,
        "admit": _ADMIT,
        "take": _TAKE,
        "hold": _HOLD,
        "index": _INDEX,
        "members": _MEMBERS,
        "check": _CHECK,
    }
)
