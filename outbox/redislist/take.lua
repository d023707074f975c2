-- Moves ids from the head of main to a worker's processing, within the credits of their jobs. Ids of
-- jobs without credit stay at the head. If they fill the window, ids of jobs that have had no credit for
-- long move to waiting, so that the ids behind them can be taken.
--
-- KEYS  state main waiting workers processing
-- ARGV  worker n window later any (job limit)...
--       n       maximum number of ids
--       window  number of ids that are read from the head
--       later   delay in ms for ids of jobs with the limit -1
--       any     1: take ids of any job (activities); 0: take ids of the listed jobs, within their limits
-- returns {items, unknown jobs as job lane pairs, length of main, ids in processing}
--
-- The first write needs no memory, so that every server version allows the later writes at maxmemory.
-- Ids are added to their new place before they are removed from main.
redis.call('HDEL', KEYS[1], '')
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[4], now, ARGV[1])

local n, window, any = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[5] == '1'
local length = redis.call('LLEN', KEYS[2])
local limits, most = {}, '9223372036854775807' -- the largest job id
for i = 6, #ARGV, 2 do
  limits[ARGV[i]] = tonumber(ARGV[i + 1])
end
local taken, fields, passed, off, unknown, reported = {}, {}, {}, {}, {}, {}
local from, size = 0, math.min(n, window)
while #taken < n and from < window do
  local items = redis.call('LRANGE', KEYS[2], from, from + size - 1)
  for _, item in ipairs(items) do
    local job, lane
    if not any then
      job, lane = item:match('^%d+/([1-9]%d*)/%-?%d+/(.*)$')
      if job and (#job > #most or #job == #most and job > most) then
        job = nil
      end
    end
    local limit = job and limits[job]
    if not job then
      limit = 1 -- any job, or not an item of belfry, which is taken in order to be removed
    end
    if limit and limit > 0 and #taken < n then
      taken[#taken + 1] = item
      fields[#fields + 1] = item
      fields[#fields + 1] = now
      if job then
        limits[job] = limit - 1
      end
    elseif limit == -1 and length > window then
      off[#off + 1] = now + ARGV[4]
      off[#off + 1] = item
    else
      passed[#passed + 1] = item
      if not limit and not reported[job] then
        reported[job] = true
        unknown[#unknown + 1] = job
        unknown[#unknown + 1] = lane
      end
    end
  end
  from = from + #items
  if #items < size then
    break
  end
  size = window - from
end
if #taken + #off > 0 then
  for i = 1, #fields, 1000 do
    redis.call('HSET', KEYS[5], unpack(fields, i, math.min(i + 999, #fields)))
  end
  for i = 1, #off, 1000 do
    redis.call('ZADD', KEYS[3], unpack(off, i, math.min(i + 999, #off)))
  end
  redis.call('LTRIM', KEYS[2], from, -1)
  for i = #passed, 1, -1 do
    redis.call('LPUSH', KEYS[2], passed[i])
  end
end
return {taken, unknown, redis.call('LLEN', KEYS[2]), redis.call('HLEN', KEYS[5])}
