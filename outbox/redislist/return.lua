-- Returns the ids in a dead worker's processing to the tail of main, and the ids that a live worker has
-- held for too long. The claim decides whether an id is still in flight.
--
-- KEYS  state main workers processing
-- ARGV  worker ttl stuck
--       ttl     ms after its last heartbeat at which a worker is dead; -1: the worker is stopping
--       stuck   ms after which an id of a live worker is returned
-- returns the number of returned ids
--
-- A worker that has a processing key but is not registered is registered here: its ids are returned
-- if it sends no heartbeat within the ttl. The first write needs no memory (take.lua). Ids are added to
-- main before they are removed from processing.
redis.call('HDEL', KEYS[1], '')
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local seen, ttl = redis.call('ZSCORE', KEYS[3], ARGV[1]), tonumber(ARGV[2])
if not seen and ttl >= 0 then
  redis.call('ZADD', KEYS[3], now, ARGV[1])
  return 0
end
local dead = ttl < 0 or seen + ttl < now
local all, items = redis.pcall('HGETALL', KEYS[4]), {}
if all.err then
  if not dead or not all.err:find('WRONGTYPE') then
    return all
  end
  redis.call('DEL', KEYS[4]) -- another client wrote the key: the ids are pushed again
  all = {}
end
for i = 1, #all, 2 do
  if dead or (tonumber(all[i + 1]) or 0) + ARGV[3] < now then
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
