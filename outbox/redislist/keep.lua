-- Shows that a worker lives, moves ids that are due from waiting to main, and makes the worker
-- the one that looks after dead ones, unless another is.
--
-- KEYS  state main waiting workers monitor
-- ARGV  worker ttl most
--       ttl     ms for which it is the one
--       most    ids at most
-- returns {ids moved, ms until the next is due or -1, 1 if it looks after dead workers}
--
-- The first write asks for no memory (take.lua); what is moved is added before it is removed.
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
local who, looks = redis.call('GET', KEYS[5]), 0
if not who or who == ARGV[1] then
  redis.call('SET', KEYS[5], ARGV[1], 'PX', ARGV[2])
  looks = 1
end
return {#due, wait, looks}
