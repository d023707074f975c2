-- Takes entries over that have been idle for too long.
-- KEYS: stream, returned
-- ARGV: group, consumer, milliseconds of idleness, then (id, deliveries so far) each
-- Returns how many are this consumer's now. One that was taken over meanwhile is not idle, and
-- left alone. One without an entry is acknowledged: servers before 7.0 would deliver it for ever.
local stream, returned = KEYS[1], KEYS[2]
local group, me, idle = ARGV[1], ARGV[2], ARGV[3]
local got = 0
for i = 4, #ARGV, 2 do
  local id = ARGV[i]
  if redis.call('XRANGE', stream, id, id)[1] then
    got = got + #redis.call('XCLAIM', stream, group, me, idle, id, 'RETRYCOUNT', ARGV[i + 1] + 1, 'JUSTID')
  else
    redis.call('XACK', stream, group, id)
    redis.call('ZREM', returned, id)
  end
end
return got
