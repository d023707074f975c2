-- Returns what a dead worker has taken to the tail of main, and what a live one has had for
-- too long. Whether any of it is in flight the claim says.
--
-- KEYS  state main workers processing
-- ARGV  worker ttl stuck
--       ttl     ms after its last sign of life that a worker is dead; -1: it ends
--       stuck   ms after which an id is returned all the same
-- returns how many
--
-- A worker that has left something and is not registered is from now on: what it took is
-- returned when it has not shown itself for the ttl. The first write asks for no memory
-- (take.lua); what is moved is added before it is removed.
redis.call('HDEL', KEYS[1], '')
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local seen, ttl = redis.call('ZSCORE', KEYS[3], ARGV[1]), tonumber(ARGV[2])
if not seen and ttl >= 0 then
  redis.call('ZADD', KEYS[3], now, ARGV[1])
  return 0
end
local dead = ttl < 0 or seen + ttl < now
local all, items = redis.call('HGETALL', KEYS[4]), {}
for i = 1, #all, 2 do
  if dead or all[i + 1] + ARGV[3] < now then
    items[#items + 1] = all[i]
  end
end
for i = 1, #items, 1000 do
  local last = math.min(i + 999, #items)
  redis.call('RPUSH', KEYS[2], unpack(items, i, last))
  redis.call('HDEL', KEYS[4], unpack(items, i, last))
end
if dead then
  redis.call('ZREM', KEYS[3], ARGV[1])
end
return #items
