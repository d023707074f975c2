-- Does with ids that a worker has taken what the claim or the outcome says. An id that is not
-- in its processing any more is another's business, and is passed.
--
-- KEYS  state main waiting dead processing
-- ARGV  bound (item what)...
--       bound   how many dead ones are kept
--       what    drop: it leaves; dead: it leaves, and is kept for a look; head, tail: back to
--               main; a number: due in so many ms
-- returns how many ids are left in processing
--
-- The first write asks for no memory (take.lua); what is moved is added before it is removed.
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
    local what = ARGV[2 * i + 1]
    if what == 'dead' then
      redis.call('LPUSH', KEYS[4], items[i])
      redis.call('LTRIM', KEYS[4], 0, ARGV[1] - 1)
    elseif what == 'head' then
      redis.call('LPUSH', KEYS[2], items[i])
    elseif what == 'tail' then
      redis.call('RPUSH', KEYS[2], items[i])
    elseif what ~= 'drop' then
      redis.call('ZADD', KEYS[3], now + what, items[i])
    end
    gone[#gone + 1] = items[i]
  end
end
if #gone > 0 then
  redis.call('HDEL', KEYS[5], unpack(gone))
end
return redis.call('HLEN', KEYS[5])
