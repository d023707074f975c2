-- Adds the copies of a push if its number is the next one, and stores the number.
-- KEYS: stream, state, waiting
-- ARGV: group, epoch, the epoch's first number, number, maximum number of waiting copies,
--       percentage of maxmemory from which pushes are full, then the copies
-- Returns done, gap or full; full and gap change nothing.
local stream, state, waiting = KEYS[1], KEYS[2], KEYS[3]
local group, epoch, first, number = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local copies = #ARGV - 6

local known = redis.call('HMGET', state, 'epoch', 'last')
if known[1] == epoch then
  local last = tonumber(known[2])
  if number <= last then return 'done' end
  if number > last + 1 then return 'gap' end
elseif number ~= first then
  return 'gap'
end

if copies > 0 then
  local pending = redis.pcall('XPENDING', stream, group)
  local taken = 0 -- if the group is missing
  if not pending.err then taken = pending[1] end
  local there = redis.call('XLEN', stream) - taken + redis.call('ZCARD', waiting)
  if there > 0 and there + copies > tonumber(ARGV[5]) then return 'full' end
  local memory = redis.pcall('INFO', 'memory') -- the user may lack the permission
  if type(memory) == 'string' then
    local limit = tonumber(string.match(memory, '\nmaxmemory:(%d+)') or 0)
    if limit > 0 and tonumber(string.match(memory, 'used_memory:(%d+)')) > limit * tonumber(ARGV[6]) / 100 then return 'full' end
  end
  for i = 7, #ARGV do
    redis.call('XADD', stream, '*', 'c', ARGV[i])
  end
end
redis.call('HSET', state, 'epoch', epoch, 'last', ARGV[4])
return 'done'
