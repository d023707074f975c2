# Enqueues a job with pg (gem install pg), in the transaction that the program's own rows are in.
#
#     DATABASE_URL=postgres://… ruby enqueue.rb
require "pg"

ENQUEUE = <<~SQL
  SELECT belfry.enqueue('push', 'operator_notice', $1,
                        audience => belfry.audience_platforms('ios', 'android'),
                        idempotency_key => $2)
SQL

db = PG.connect(ENV.fetch("DATABASE_URL"), connect_timeout: 10)
begin
  db.transaction do |tx|
    # … the program's own statements …
    row = tx.exec_params(ENQUEUE, ["Maintenance at nine", "maintenance-2026-11"]).first
    puts "job #{row["enqueue"]}"
  end
ensure
  db.close
end
