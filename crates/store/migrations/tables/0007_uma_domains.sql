-- UMA domains and the platforms that have them, or had them once: a domain is one platform's, live or
-- not. The key follows from the domain. Servers claim those of an earlier release as they start.
create table uma_domains (
    id {bytes} not null primary key,
    domain {text} not null,
    platform {bytes} not null
) {strict};
