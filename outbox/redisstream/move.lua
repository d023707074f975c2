-- Moves due copies from waiting to the end of the stream.
-- KEYS: stream, waiting, returned
-- ARGV: maximum number of copies
-- Returns the milliseconds until the next copy is due: 0 now, -1 if there is none.
local stream, waiting, returned = KEYS[1], KEYS[2], KEYS[3]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local due = redis.call('ZRANGEBYSCORE', waiting, '-inf', string.format('%.0f', now), 'LIMIT', 0, tonumber(ARGV[1]))
if #due > 0 then
  redis.call('ZREM', waiting, '') -- a write that maxmemory permits, see settle.lua
  for _, copy in ipairs(due) do
    local push = string.match(copy, '^%-?%d+ %-?%d+ (%d+) ')
    if push and #push < 20 then -- other members were not written by belfry and are only removed
      local id = redis.call('XADD', stream, '*', 'c', copy)
      redis.call('ZADD', returned, push, id)
    end
  end
  redis.call('ZREM', waiting, unpack(due))
  redis.call('ZREM', returned, unpack(due))
end
local next = redis.call('ZRANGE', waiting, 0, 0, 'WITHSCORES')[2]
if not next then return -1 end
return math.max(0, tonumber(next) - now)
