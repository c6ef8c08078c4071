-- Who gave a standing approval, in which role.
ALTER TABLE grants ADD COLUMN given_role TEXT NOT NULL DEFAULT 'human';
