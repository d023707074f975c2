-- Takes over idle entries.
-- KEYS: stream, returned
-- ARGV: group, consumer, minimum idle time in milliseconds, then the id and the deliveries of each entry
-- Returns the number of entries taken over. Entries that another consumer has taken over are not idle and
-- are skipped. Deleted entries are acknowledged, because servers before 7.0 would deliver them forever.
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
