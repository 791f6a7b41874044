"""The Lua scripts of the Redis store besides the commit, and the names of its keys.

``KEYS[1]`` of every script that counts is the hash of the calling process: ``last`` is the number of its last append,
``writes`` counts its commits, and ``0`` to ``1023`` remember the outcomes of its last appends. They are how a process
notices that acknowledged writes are gone, and how a repeated append is done once.
"""

from __future__ import annotations

__all__ = ["ADMIT", "APPEND", "CHECK", "LEASES", "MEMBERS", "PROCESS_SECONDS", "PRUNE", "RING", "TAKE"]
__all__ += ["KeyNames", "milliseconds"]

#: How many outcomes of appends are remembered for each process; never more than this are unacknowledged.
RING = 1024
#: For how long the hash of a process is kept after its last sign of life: longer than outages, shorter than for ever.
PROCESS_SECONDS = 86400

# KEYS: process, stream, its size. ARGV: data, most entries, most bytes, milliseconds to live, number of this append,
# number of the last acknowledged one, number of the one before it in its group or 0, channel or "". If the one before
# it was refused, so is this: it must not overtake that one.
APPEND = f"""
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
local count = redis.call('XLEN', KEYS[2])
local size
if count == 1 then
  size = #ARGV[1]
  redis.call('SET', KEYS[3], size)
else
  size = redis.call('INCRBY', KEYS[3], #ARGV[1])
end
while count > 1 and (count > tonumber(ARGV[2]) or size > tonumber(ARGV[3])) do
  local oldest = redis.call('XRANGE', KEYS[2], '-', '+', 'COUNT', 1)[1]
  redis.call('XDEL', KEYS[2], oldest[1])
  size = redis.call('DECRBY', KEYS[3], #oldest[2][2])
  count = count - 1
end
redis.call('PEXPIRE', KEYS[2], ARGV[4])
redis.call('PEXPIRE', KEYS[3], ARGV[4])
local heard = 0
if ARGV[8] ~= '' then heard = redis.call('PUBLISH', ARGV[8], id .. ' ' .. ARGV[1]) end
redis.call('HSET', KEYS[1], 'last', math.max(last, ARGV[5]), slot, ARGV[5] .. ' ' .. heard .. ' ' .. id)
redis.call('EXPIRE', KEYS[1], {PROCESS_SECONDS})
return {{id, heard}}
"""

# GCRA. KEYS: key. ARGV: microseconds between two events, burst, number of events. Returns the microseconds to wait.
ADMIT = """
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

# KEYS: those of a queue. ARGV: holder, milliseconds of a lease, limit. Returns id, data and attempt of each entry:
# first those whose lease ran out, so that a queue which never empties does not leave them behind.
TAKE = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local limit, taken = tonumber(ARGV[3]), {}
local late = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now - ARGV[2]), 'LIMIT', 0, limit)
local free = limit > #late and redis.call('ZRANGE', KEYS[2], 0, limit - #late - 1) or {}
for _, ids in ipairs({late, free}) do
  for _, id in ipairs(ids) do
    local attempt = tonumber(string.match(redis.call('HGET', KEYS[4], id) or '', '^%d+') or '0') + 1
    redis.call('ZREM', KEYS[2], id)
    redis.call('ZADD', KEYS[1], string.format('%.0f', now), id)
    redis.call('HSET', KEYS[4], id, attempt .. ' ' .. ARGV[1])
    taken[#taken + 1] = {id, redis.call('HGET', KEYS[3], id), attempt}
  end
end
return taken
"""

# KEYS: those of a queue. ARGV: holder, "renew" or "release", ids. Returns the ids that the holder has. A lease that was
# released is one that ran out long ago.
LEASES = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local leased = {}
for i = 3, #ARGV do
  local attempt, holder = string.match(redis.call('HGET', KEYS[4], ARGV[i]) or '', '^(%d+) (.*)$')
  if attempt and holder == ARGV[1] then
    leased[#leased + 1] = ARGV[i]
    if ARGV[2] == 'renew' then
      redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[i])
    else
      redis.call('ZADD', KEYS[1], '-inf', ARGV[i])
      redis.call('HSET', KEYS[4], ARGV[i], attempt .. ' ')
    end
  end
end
return leased
"""

# Functions on the index whose keys begin at ``KEYS[i]``. Of the members that have expired some hundreds are removed by
# each call, which keeps up with those that are added.
PRUNE = """
local function remove(i, name)
  redis.call('ZREM', KEYS[i], name)
  redis.call('ZREM', KEYS[i + 1], name)
  local freed = redis.call('HGET', KEYS[i + 2], name)
  if freed then
    redis.call('HDEL', KEYS[i + 2], name)
    redis.call('HINCRBY', KEYS[i + 2], '', -freed)
  end
end
local function prune(i)
  for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[i + 1], '-inf', now, 'LIMIT', 0, 500)) do remove(i, name) end
end
"""

# KEYS: those of an index. ARGV: after which member, how many.
MEMBERS = f"""
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
{PRUNE}
prune(1)
local from, limit, members = ARGV[1] == '' and '-' or ('(' .. ARGV[1]), tonumber(ARGV[2]), {{}}
while #members < limit do
  local names = redis.call('ZRANGEBYLEX', KEYS[1], from, '+', 'LIMIT', 0, limit - #members)
  if #names == 0 then break end
  for _, name in ipairs(names) do
    from = '(' .. name
    if tonumber(redis.call('ZSCORE', KEYS[2], name) or '0') > now then members[#members + 1] = name end
  end
end
return members
"""

# The regular check. KEYS: process, generation, history. ARGV: a new generation, the last acknowledged append, the
# number of acknowledged writes, the generation that the process knows or "", whether the history of this Redis proves
# that it has lost nothing, then that history (run, replication id, "1" if durable), then the generations that the
# process knows to have ended. Returns the generation, 1 if writes of this process are gone, and what there is of
# them: the number of the last append, and of the writes. If anything is gone, or may be, a new generation begins,
# unless another process has begun one since: each would end the sessions that were opened after the one before. One
# that had ended is back only if the end of it was lost.
CHECK = f"""
local last = tonumber(redis.call('HGET', KEYS[1], 'last') or '0')
local writes = tonumber(redis.call('HGET', KEYS[1], 'writes') or '0')
redis.call('EXPIRE', KEYS[1], {PROCESS_SECONDS})
local lost = last < tonumber(ARGV[2]) or writes < tonumber(ARGV[3])
local generation = redis.call('GET', KEYS[2])
local begins = not generation or ((lost or ARGV[5] ~= '1') and generation == ARGV[4])
for i = 9, #ARGV do begins = begins or generation == ARGV[i] end
if begins then
  redis.call('SET', KEYS[2], ARGV[1])
  generation = ARGV[1]
end
local before = redis.call('HMGET', KEYS[3], 'run', 'replication', 'durable')
if before[1] ~= ARGV[6] or before[2] ~= ARGV[7] or before[3] ~= ARGV[8] then
  redis.call('HSET', KEYS[3], 'run', ARGV[6], 'replication', ARGV[7], 'durable', ARGV[8])
end
return {{generation, lost and 1 or 0, last, writes}}
"""


class KeyNames:
    """The names of the keys and channels of one server."""

    def __init__(self, server: str) -> None:
        """Use the name of a server."""
        # A hash tag: on a cluster all keys of a server lie in one slot, as the scripts need it.
        self.prefix = f"{{trunkline:{server.replace('{', '(').replace('}', ')')}}}:"
        self.generation: str = f"{self.prefix}generation"
        self.history: str = f"{self.prefix}history"

    def value(self, key: str) -> str:
        """Return the key of a value."""
        return f"{self.prefix}value:{key}"

    def log(self, log: str) -> list[str]:
        """Return the keys of a log: its stream, and how many bytes it has."""
        return [f"{self.prefix}log:{log}", f"{self.prefix}size:{log}"]

    def limit(self, key: str) -> str:
        """Return the key of a count of events."""
        return f"{self.prefix}limit:{key}"

    def queue(self, queue: str) -> list[str]:
        """Return the keys of a queue: entries with a lease, without one, their data, their attempts and holders."""
        return [f"{self.prefix}queue:{queue}:{part}" for part in ("leased", "free", "data", "holders")]

    def index(self, index: str) -> list[str]:
        """Return the keys of an index: members in their order, when they expire, their weights."""
        return [f"{self.prefix}index:{index}:{part}" for part in ("order", "until", "weight")]

    def process(self, process: str) -> str:
        """Return the key of the hash of a process."""
        return f"{self.prefix}process:{process}"

    def channel(self, channel: str) -> str:
        """Return the name of a channel."""
        return self.prefix + channel


def milliseconds(seconds: float) -> int:
    """Return a time to live as Redis needs it: at least one millisecond."""
    return max(1, round(seconds * 1000))
