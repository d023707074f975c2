-- Records the worker's heartbeat, moves due ids from waiting to main, and makes the worker the
-- monitor of dead workers if there is no other monitor.
--
-- KEYS  state main waiting workers monitor
-- ARGV  worker ttl most
--       ttl     duration of the monitor role in ms
--       most    maximum number of ids to move
-- returns {ids moved, ms until the next id is due or -1, 1 if the worker is the monitor}
--
-- The first write needs no memory (take.lua). Ids are added to main before they are removed from
-- waiting.
redis.call('HDEL', KEYS[1], '')
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[4], now, ARGV[1])
local due = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now, 'LIMIT', 0, ARGV[3])
if #due > 0 then
  redis.call('RPUSH', KEYS[2], unpack(due))
  redis.call('ZREM', KEYS[3], unpack(due))
end
local next, wait = redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES'), -1
if next[2] then
  wait = math.max(0, next[2] - now)
end
local holder, monitors = redis.call('GET', KEYS[5]), 0
if not holder or holder == ARGV[1] then
  redis.call('SET', KEYS[5], ARGV[1], 'PX', ARGV[2])
  monitors = 1
end
return {#due, wait, monitors}
