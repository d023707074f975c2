-- Adds the ids of a push to main and records the push, atomically and once.
--
-- KEYS  state main waiting workers
-- ARGV  tag epoch first number max item...
--       tag     prefix of all keys of the queue
--       max     maximum number of ids in main and waiting
-- returns done, gap or full (relay.PushAnswer). An OOM error means that the script changed nothing.
--
-- A new epoch deletes the copies of the previous epoch: the dispatcher pushes the due ones again.
local tag, epoch, first, number, max = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local state = redis.call('HMGET', KEYS[1], 'epoch', 'last')
local known, last = state[1] == epoch, tonumber(state[2])
if known and number <= last then
  return 'done'
elseif known and number > last + 1 or not known and number ~= first then
  return 'gap'
end
local n = #ARGV - 5
if known and n > 0 then
  local inside = redis.call('LLEN', KEYS[2]) + redis.call('ZCARD', KEYS[3])
  if inside > 0 then -- a push fits into an empty queue
    if inside + n > max then
      return 'full'
    end
    local memory = redis.pcall('INFO', 'memory') -- the user may lack the permission
    if type(memory) == 'string' then
      local limit = tonumber(memory:match('maxmemory:(%d+)'))
      if limit and limit > 0 and tonumber(memory:match('used_memory:(%d+)')) > 0.8 * limit then
        return 'full'
      end
    end
  end
end
if not known then
  for _, worker in ipairs(redis.call('ZRANGE', KEYS[4], 0, -1)) do
    redis.call('DEL', tag .. 'processing:' .. worker)
  end
  redis.call('DEL', KEYS[2], KEYS[3])
end
for i = 6, #ARGV, 1000 do
  redis.call('RPUSH', KEYS[2], unpack(ARGV, i, math.min(i + 999, #ARGV)))
end
redis.call('HSET', KEYS[1], 'epoch', epoch, 'first', ARGV[3], 'last', ARGV[4])
return 'done'
