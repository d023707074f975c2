-- Makes the group where there is none, and the stream with it, from the stream's beginning: what
-- is there was not delivered to anybody. It works at maxmemory, as settle.lua does.
-- KEYS: stream, waiting
-- ARGV: group
redis.call('ZREM', KEYS[2], '')
local made = redis.pcall('XGROUP', 'CREATE', KEYS[1], ARGV[1], '0', 'MKSTREAM')
if made.err and not string.find(made.err, 'BUSYGROUP', 1, true) then return made end
