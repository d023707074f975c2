-- Removes every notification and message.
DROP TABLE belfry.messages;
DROP TABLE belfry.notifications;
