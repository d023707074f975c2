-- Dead letters stay; only the view goes.
DROP VIEW belfry.dead_letters;
