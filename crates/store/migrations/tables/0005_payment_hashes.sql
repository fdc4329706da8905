-- The payment that each payment hash is claimed by, for ever: what has the preimage of one invoice has
-- that of every other with its hash.
create table payment_hashes (
    hash {bytes} not null primary key,
    payment {bytes} not null
) {strict};
