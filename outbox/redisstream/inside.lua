-- Trims acknowledged entries and returns the pushes of the queue.
-- KEYS: stream, state, waiting, returned
-- ARGV: group
-- Returns the epoch (empty if there is none), the last push, and the earliest push that may have a copy here.
local stream, state, waiting, returned = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local group = ARGV[1]

-- after returns the id that follows.
local function after(id)
  local ms, n = string.match(id, '(%d+)%-(%d+)')
  return ms .. '-' .. string.format('%.0f', tonumber(n) + 1)
end

-- below compares ids as text, because their parts may exceed the precision of numbers.
local function below(a, b)
  local am, an = string.match(a, '(%d+)%-(%d+)')
  local bm, bn = string.match(b, '(%d+)%-(%d+)')
  if am ~= bm then return #am < #bm or #am == #bm and am < bm end
  return #an < #bn or #an == #bn and an < bn
end

-- All entries up to the last delivered id and below the lowest pending id are acknowledged. A group that
-- was reset to an earlier id delivers the following entries again.
local groups = redis.pcall('XINFO', 'GROUPS', stream)
if not groups.err then
  for _, g in ipairs(groups) do
    local of = {}
    for i = 1, #g, 2 do of[g[i]] = g[i + 1] end
    if of['name'] == group then
      local point = after(of['last-delivered-id'])
      local lowest = redis.call('XPENDING', stream, group)[2]
      if lowest and below(lowest, point) then point = lowest end
      redis.call('XTRIM', stream, 'MINID', '=', point)
    end
  end
end

local known = redis.call('HMGET', state, 'epoch', 'last')
local last = tonumber(known[2] or 0)
local oldest = last + 1
-- Entries that were not written by belfry are passed, until a worker removes them. Behind too many of them
-- there may be any push.
local first = redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)[1]
for passed = 1, 1000 do
  local push = first and tonumber(string.match(first[2][2] or '', '^%-?%d+ %-?%d+ (%d+) '))
  if push or not first then
    oldest = math.min(oldest, push or oldest)
    break
  elseif passed == 1000 then
    oldest = 1
  end
  first = redis.call('XRANGE', stream, after(first[1]), '+', 'COUNT', 1)[1]
end
-- Copies that were waiting have an earlier push than their place in the stream. Records of deleted copies
-- are removed.
for _ = 1, 1000 do
  local r = redis.call('ZRANGE', returned, 0, 0, 'WITHSCORES')
  if not r[1] then break end
  local here
  if string.match(r[1], '^%d+%-%d+$') then
    here = redis.call('XRANGE', stream, r[1], r[1])[1]
  else
    here = redis.call('ZSCORE', waiting, r[1])
  end
  if here then
    oldest = math.min(oldest, tonumber(r[2]))
    break
  end
  redis.call('ZREM', returned, r[1])
end
return {known[1] or '', last, oldest}
