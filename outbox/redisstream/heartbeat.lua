-- Stores a consumer's heartbeat and deletes dead consumers without pending entries.
-- KEYS: stream, consumers
-- ARGV: group, consumer (empty to store no heartbeat), milliseconds after which a heartbeat expires
-- Returns the live consumers. It works at maxmemory, like settle.lua.
local stream, consumers = KEYS[1], KEYS[2]
local group, me = ARGV[1], ARGV[2]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREM', consumers, '')
if me ~= '' then redis.call('ZADD', consumers, string.format('%.0f', now), me) end

local since = now - tonumber(ARGV[3])
local function lives(name)
  local seen = redis.call('ZSCORE', consumers, name)
  return seen and tonumber(seen) >= since
end
local of, list = {}, redis.pcall('XINFO', 'CONSUMERS', stream, group)
if not list.err then
  for _, c in ipairs(list) do
    local info = {}
    for i = 1, #c, 2 do info[c[i]] = c[i + 1] end
    of[info['name']] = info['pending']
    if info['pending'] == 0 and not lives(info['name']) then
      redis.call('XGROUP', 'DELCONSUMER', stream, group, info['name'])
      redis.call('ZREM', consumers, info['name'])
    end
  end
end
for _, name in ipairs(redis.call('ZRANGEBYSCORE', consumers, '-inf', '(' .. string.format('%.0f', since))) do
  if not of[name] then redis.call('ZREM', consumers, name) end
end
return redis.call('ZRANGEBYSCORE', consumers, string.format('%.0f', since), '+inf')
