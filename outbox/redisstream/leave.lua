-- Removes a consumer's heartbeat, and the consumer if it has no pending entries.
-- KEYS: stream, consumers
-- ARGV: group, consumer
local stream, consumers = KEYS[1], KEYS[2]
redis.call('ZREM', consumers, ARGV[2])
local list = redis.pcall('XINFO', 'CONSUMERS', stream, ARGV[1])
if list.err then return end
for _, c in ipairs(list) do
  local info = {}
  for i = 1, #c, 2 do info[c[i]] = c[i + 1] end
  if info['name'] == ARGV[2] and info['pending'] == 0 then
    redis.call('XGROUP', 'DELCONSUMER', stream, ARGV[1], ARGV[2])
  end
end
