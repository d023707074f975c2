-- Removes the recipients and their opt-outs.
DROP FUNCTION belfry.opt_in, belfry.opt_out;
DROP FUNCTION belfry.attached_relation, belfry.attached_types;
DROP TABLE belfry.invalid_addresses, belfry.opt_outs, belfry.segment_members, belfry.segments,
    belfry.recipients, belfry.attachments, belfry.attachment_misses,
    belfry.channels;
DROP FUNCTION belfry.record_recipients, belfry.trusted_relation, belfry.relation_named, belfry.attachment_strays, belfry.attachment_step, belfry.attachment_follow, belfry.attachment_unfollow, belfry.attached_object, belfry.attached_type,
    belfry.channels_follow, belfry.attached_channel, belfry.opt_outs_validate, belfry.invalid_addresses_bound, belfry.check_audience, belfry.audience_without, belfry.audience_segment,
    belfry.audience_external_ids, belfry.audience_channels, belfry.audience_radius, belfry.audience_platforms,
    belfry.audience_everyone, belfry.distance_m, belfry.channels_touch;
