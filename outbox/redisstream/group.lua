-- Creates the group, and the stream, if it is missing. The group starts at the stream's beginning, because
-- existing entries were not delivered. It works at maxmemory, like settle.lua.
-- KEYS: stream, waiting
-- ARGV: group
redis.call('ZREM', KEYS[2], '')
local made = redis.pcall('XGROUP', 'CREATE', KEYS[1], ARGV[1], '0', 'MKSTREAM')
if made.err and not string.find(made.err, 'BUSYGROUP', 1, true) then return made end
