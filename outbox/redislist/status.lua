-- Reports the contents of a queue.
--
-- KEYS  state main waiting workers dead
-- ARGV  tag max
-- returns {epoch or '', last push, oldest push of a copy or -1, length of main, of waiting, of dead,
--          1 if full, then for each worker: name, ms of its last heartbeat, ids in its processing}
--
-- The oldest push is computed from the copies: a counter would include copies that the server has
-- lost. Reading 50,000 copies takes about 15 ms.
local oldest = -1
local function scan(items)
  local pushes = {}
  for _, item in ipairs(items) do
    pushes[item:match('^(%d%d%d%d%d%d%d%d%d%d%d%d)/') or 0] = true
  end
  pushes[0] = nil -- not items of belfry
  for push in pairs(pushes) do
    push = tonumber(push)
    if oldest < 0 or push < oldest then
      oldest = push
    end
  end
end
local state = redis.call('HMGET', KEYS[1], 'epoch', 'last')
local main, waiting = redis.call('LLEN', KEYS[2]), redis.call('ZCARD', KEYS[3])
for from = 0, main - 1, 1000 do
  scan(redis.call('LRANGE', KEYS[2], from, from + 999))
end
for from = 0, waiting - 1, 1000 do
  scan(redis.call('ZRANGE', KEYS[3], from, from + 999))
end
local workers, list = redis.call('ZRANGE', KEYS[4], 0, -1, 'WITHSCORES'), {}
for i = 1, #workers, 2 do
  local taken = redis.pcall('HKEYS', ARGV[1] .. 'processing:' .. workers[i])
  if taken.err then
    if not taken.err:find('WRONGTYPE') then
      return taken
    end
    taken = {} -- another client wrote the key: return.lua deletes it
  end
  scan(taken)
  list[#list + 1] = workers[i]
  list[#list + 1] = tonumber(workers[i + 1])
  list[#list + 1] = #taken
end
local full = main + waiting >= tonumber(ARGV[2]) and 1 or 0
local memory = redis.pcall('INFO', 'memory')
if type(memory) == 'string' then
  local limit = tonumber(memory:match('maxmemory:(%d+)'))
  if limit and limit > 0 and tonumber(memory:match('used_memory:(%d+)')) > 0.8 * limit then
    full = 1
  end
end
return {state[1] or '', tonumber(state[2]) or 0, oldest, main, waiting, redis.call('LLEN', KEYS[5]), full, unpack(list)}
