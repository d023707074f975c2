-- Applies PostgreSQL's verdicts: removes entries, moves them to waiting, or stores them in dead.
-- KEYS: stream, waiting, returned, dead
-- ARGV: group, maximum length of dead, number of ids, number of waiting copies, then the ids of entries to
--       remove; copy, push and delay in milliseconds of each waiting copy; the dead copies
-- The ids to remove include those of waiting and dead copies. It works at maxmemory: Redis checks only a
-- script's first write, and permits removals.
local stream, waiting, returned, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local group, keep, go, wait = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
redis.call('ZREM', waiting, '')

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local at = 4 + go
for i = at + 1, at + 3 * wait, 3 do
  redis.call('ZADD', waiting, string.format('%.0f', now + tonumber(ARGV[i + 2])), ARGV[i])
  redis.call('ZADD', returned, ARGV[i + 1], ARGV[i])
end
for i = at + 3 * wait + 1, #ARGV do
  redis.call('XADD', dead, 'MAXLEN', '~', keep, '*', 'c', ARGV[i])
end
if go > 0 then
  local ids = {unpack(ARGV, 5, at)}
  redis.call('XACK', stream, group, unpack(ids))
  redis.call('XDEL', stream, unpack(ids))
  redis.call('ZREM', returned, unpack(ids))
end
