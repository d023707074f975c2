-- Applies the verdict of the claim, or the recorded outcome, to ids in a worker's processing. An id
-- that is no longer there belongs to another worker and is skipped.
--
-- KEYS  state main waiting dead processing
-- ARGV  bound (item change)...
--       bound   maximum length of the list of dead letters
--       change  drop: remove; dead: remove and add to dead; head, tail: return to main; a number: move
--               to waiting, due in that many ms
-- returns the number of ids left in processing
--
-- The first write needs no memory (take.lua). Ids are added to their new place before they are removed
-- from processing.
redis.call('HDEL', KEYS[1], '')
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local items = {}
for i = 2, #ARGV, 2 do
  items[#items + 1] = ARGV[i]
end
local there, gone = redis.call('HMGET', KEYS[5], unpack(items)), {}
for i, taken in ipairs(there) do
  if taken then
    local change = ARGV[2 * i + 1]
    if change == 'dead' then
      redis.call('LPUSH', KEYS[4], items[i])
      redis.call('LTRIM', KEYS[4], 0, ARGV[1] - 1)
    elseif change == 'head' then
      redis.call('LPUSH', KEYS[2], items[i])
    elseif change == 'tail' then
      redis.call('RPUSH', KEYS[2], items[i])
    elseif change ~= 'drop' then
      redis.call('ZADD', KEYS[3], now + change, items[i])
    end
    gone[#gone + 1] = items[i]
  end
end
if #gone > 0 then
  redis.call('HDEL', KEYS[5], unpack(gone))
end
return redis.call('HLEN', KEYS[5])
